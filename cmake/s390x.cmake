# Cross-compiling for Linux on s390x with Debian's g++-s390x-linux-gnu; programs run under qemu-s390x-static.
set(CMAKE_SYSTEM_PROCESSOR s390x)
set(triple s390x-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
# gcc 12 counts the iterations of some loops wrongly here: one, whatever the length.
set(CMAKE_CXX_FLAGS_INIT -fno-branch-count-reg)
