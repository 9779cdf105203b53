// Lists the functions of a kernel library; never compiled.
