# Every fuzz/NAME_fuzz.cpp is a program fuzz_NAME for libFuzzer, with the address and undefined-behaviour
# sanitizers. Only clang has libFuzzer: the preset `fuzz` says so.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "PHX_FUZZ needs clang: cmake --preset fuzz")
endif()
file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cpp")
foreach(program IN LISTS programs)
  get_filename_component(name "${program}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  add_executable(fuzz_${name} "${program}")
  # Most files that others wrote are read by the data room; those of checkpoints by their own.
  if(name MATCHES "safetensors|manifest|pickle|torch")
    target_link_libraries(fuzz_${name} PRIVATE phx_checkpoint)
  else()
    target_link_libraries(fuzz_${name} PRIVATE phx_data)
  endif()
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
