# Precompiled headers of libraries (not of our own code, so that a change of ours rebuilds only what
# reads it). Each is compiled once and shared by all rooms, or by all tests.
option(PHX_PCH "Parse the headers of libraries once (off: every source must include what it uses)" ON)

add_library(phx_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch/empty.cpp")
target_link_libraries(phx_pch PRIVATE phx_flags fmt::fmt)
target_precompile_headers(phx_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/pch/library.h")

# Tests are compiled quickly rather than well: what they test is optimised. So are rooms where no time is spent.
set(PHX_QUICK_BUILD $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
if(PHX_TESTS)
  add_library(phx_test_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch/empty.cpp")
  target_link_libraries(phx_test_pch PRIVATE phx_flags fmt::fmt GTest::gtest)
  # As executables are compiled: a header precompiled with -fPIC does not fit them.
  set_target_properties(phx_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(phx_test_pch PRIVATE ${PHX_QUICK_BUILD} -fPIE)
  target_precompile_headers(phx_test_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/pch/test.h")
endif()

function(phx_reuse_headers target from)
  if(PHX_PCH)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
