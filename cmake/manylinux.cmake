# What manylinux-*.cmake have in common. Stripped: zig leaves much behind.
set(CMAKE_SYSTEM_NAME Linux)
set(zig_target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.2.17)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
