# build/plain/bochs: test programs without shared libraries, and the ROM of the machine that Bochs emulates
# for them (tests/native/emulated_x86.py). Not where the C++ library exists as a shared one only.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
check_cxx_source_compiles("#include <vector>\nint main() { return int(std::vector<int>().size()); }" DBQ_STATIC)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(NOT DBQ_STATIC)
  message(STATUS "no static C++ library: nothing is built for Bochs")
  return()
endif()

foreach(test kernel_test logits)
  add_program(bochs_${test} $<TARGET_OBJECTS:${test}>)
  target_link_options(bochs_${test} PRIVATE -static -no-pie)
  set_target_properties(bochs_${test} PROPERTIES OUTPUT_NAME ${test} LINKER_LANGUAGE CXX)
endforeach()

enable_language(ASM)
add_executable(bochs_rom tests/native/bochs/start.S tests/native/bochs/system.c)
target_compile_options(bochs_rom PRIVATE -ffreestanding -fno-pic -fno-pie -fno-stack-protector -fcf-protection=none
                                         -mgeneral-regs-only -mno-red-zone)
set(script ${PROJECT_SOURCE_DIR}/tests/native/bochs/rom.ld)
target_link_options(bochs_rom PRIVATE -static -no-pie -nostdlib -Wl,--build-id=none,--oformat=binary -T ${script})
set_target_properties(bochs_rom PROPERTIES POSITION_INDEPENDENT_CODE OFF LINK_DEPENDS ${script}
                                           OUTPUT_NAME bochs.rom)
set_target_properties(bochs_rom bochs_kernel_test bochs_logits PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bochs)
