# Compiler flags that are the same for every target.
add_library(phx_flags INTERFACE)
# Sources say "phalanx/room/name.h", in the tree as where the library is installed.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src" "${PROJECT_BINARY_DIR}/include/phalanx" SYMBOLIC)
target_include_directories(phx_flags INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>" "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(phx_flags INTERFACE cxx_std_20)
# -ffp-contract=off: the same source gives the same bits from every compiler; where a fused
# multiply-add is wanted, the code says std::fma.
target_compile_options(phx_flags INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-restrict;-Wno-missing-field-initializers;-fno-math-errno;-fno-trapping-math;-ffp-contract=off;-fopenmp-simd>>"
  "$<INSTALL_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>>")  # users have other warnings
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(phx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3>)
endif()
if(PHX_SANITIZE)
  target_compile_options(phx_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PHX_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(phx_flags INTERFACE -fsanitize=${PHX_SANITIZE})
endif()
find_program(PHX_MOLD mold)
if(PHX_MOLD)
  target_link_options(phx_flags INTERFACE $<BUILD_INTERFACE:$<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>>)
endif()
find_program(PHX_CCACHE ccache)
if(PHX_CCACHE)
  # Precompiled headers need the sloppiness; relative paths let presets and clones share objects.
  set(launcher env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros "${PHX_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
