# Wheels for Linux on x86_64 with glibc 2.17 (2012) or later, by zig, on any machine: docs/releasing.md.
set(CMAKE_SYSTEM_PROCESSOR x86_64)
include(${CMAKE_CURRENT_LIST_DIR}/manylinux.cmake)
