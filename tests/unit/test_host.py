from tiga.backends.llvm.host import ASSUMED, last_cache_bytes


def test_the_largest_cache_counts(tmp_path):
    for name, size in (("index0", "48K"), ("index2", "1024K"), ("index3", "32M")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(f"{size}\n")
    assert last_cache_bytes(str(tmp_path)) == 32 * 2**20


def test_a_system_that_does_not_tell(tmp_path):
    (tmp_path / "index0").mkdir()
    (tmp_path / "index0" / "size").write_text("many\n")
    assert last_cache_bytes(str(tmp_path)) == ASSUMED
    assert last_cache_bytes(str(tmp_path / "absent")) == ASSUMED
