# Each benchmarks/*.cpp is a program of its own: cmake --build <folder> --target cpu_lm_loss
file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/*.cpp")
foreach(program IN LISTS programs)
  get_filename_component(name "${program}" NAME_WE)
  add_executable(${name} "${program}")
  target_link_libraries(${name} PRIVATE phx_ops)
endforeach()
