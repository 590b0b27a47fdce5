# Cross-compiling for Linux on aarch64 with Debian's g++-aarch64-linux-gnu; programs run under qemu-aarch64-static.
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(triple aarch64-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
