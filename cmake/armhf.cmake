# Cross-compiling for Linux on armhf with Debian's g++-arm-linux-gnueabihf; programs run under qemu-arm-static.
set(CMAKE_SYSTEM_PROCESSOR arm)
set(triple arm-linux-gnueabihf)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
