# WebAssembly, by zig.
set(CMAKE_SYSTEM_NAME WASI)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(zig_target wasm32-wasi)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
