# DBQ_ZIG: the compiler of Python's package ziglang, or empty. -I also looks where pip installs to, beyond the
# environment that pip makes for a build.
if(NOT EXISTS "${DBQ_ZIG}")
  find_program(DBQ_PYTHON3 NAMES python python3)
  foreach(isolation -I -E)
    execute_process(COMMAND ${DBQ_PYTHON3} ${isolation} -c
                    "import ziglang, os; print(os.path.dirname(ziglang.__file__), end='/zig')"
                    OUTPUT_VARIABLE zig ERROR_QUIET)
    if(EXISTS "${zig}")
      break()
    endif()
  endforeach()
  set(DBQ_ZIG "${zig}" CACHE FILEPATH "zig, of Python's package ziglang" FORCE)
endif()
