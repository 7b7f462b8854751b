"""From `edge` and `node` as users write them to the program that they describe. In order:

- `discover` finds what their code can read, and `guards` what has to stay as it is for a program to
  serve another call.
- `program` runs them once on traced values: `tracer` records what torch is asked to do, `intercept`
  decides before ATen sees a call, `aten/` says what each op means.
- `numbers` and `extent` are numbers that stay variable, `draws` random numbers, `custom` users'
  reducers.
"""
