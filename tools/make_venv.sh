#!/usr/bin/env bash
# Makes a virtual environment with pip in it.   usage: make_venv.sh PYTHON FOLDER
set -euo pipefail
python=$1 folder=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "tiga needs Python 3.10 or newer; '$python' is $("$python" --version 2>&1)." >&2
  echo "Name another one:  make ... PYTHON=python3.11" >&2
  exit 1
fi

# Some distributions ship venv without ensurepip: then the pip outside installs the one inside.
if "$python" -c 'import ensurepip' 2>/dev/null; then
  "$python" -m venv "$folder"
  exit
fi
"$python" -m venv --without-pip "$folder"
if ! "$python" -m pip --python "$folder/bin/python" install --quiet pip; then
  rm -rf "$folder"
  echo "'$python' has neither ensurepip nor a pip of at least 22.3 to stand in for it." >&2
  echo "Install one of them, say with:  apt-get install python3-venv   or   apt-get install python3-pip" >&2
  exit 1
fi
