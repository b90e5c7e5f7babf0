# CUDA: nvcc compiles the .cu files; the runtime is linked statically. cuBLASLt, cuDNN and NCCL are
# opened at first use, so that the program starts quickly and runs on machines without a GPU.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
set(PHX_CUDA_ARCHS "${CMAKE_CUDA_ARCHITECTURES}" CACHE STRING
    "GPUs to compile for: any of 80 86 89 90a 100 120, or portable: PTX of 8.0, which the driver compiles at first use")
if(PHX_CUDA_ARCHS STREQUAL "portable")
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
else()
  set(CMAKE_CUDA_ARCHITECTURES ${PHX_CUDA_ARCHS})
endif()
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
# CMake 3.25 does not know nvcc 13's dialects.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit 13.0 REQUIRED)
find_path(PHX_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_path(PHX_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS "${PROJECT_SOURCE_DIR}/.deps/cudnn-frontend/include" NO_DEFAULT_PATH)
if(NOT PHX_CUDNN_FRONTEND_INCLUDE)
  message(FATAL_ERROR "cudnn-frontend's headers are missing: run scripts/setup.sh, which puts them into .deps/")
endif()

add_library(phx_cuda INTERFACE)
# Only rooms with GPU code and the tests read this: the objects of the others are the same in every preset,
# and ccache has them.
target_compile_definitions(phx_cuda INTERFACE $<BUILD_INTERFACE:PHX_HAVE_CUDA>)
string(REPLACE ";" " " archs_text "${PHX_CUDA_ARCHS}")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/core/cuda/device_code.cu" PROPERTIES
  COMPILE_DEFINITIONS "PHX_CUDA_ARCHS_TEXT=\"${archs_text}\"")
foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS PHX_CUDNN_INCLUDE PHX_CUDNN_FRONTEND_INCLUDE)
  target_include_directories(phx_cuda SYSTEM INTERFACE "$<BUILD_INTERFACE:${folder}>")
endforeach()

# Tables of tuned products become a part of the program, each a string under its file's name.
file(GLOB tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/kernels/cuda/tables/*.json")
set(tables_text "")
foreach(table IN LISTS tables)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${table}")
  get_filename_component(name "${table}" NAME_WE)
  file(READ "${table}" text)
  string(APPEND tables_text "{\"${name}\", R\"phx(${text})phx\"},\n")
endforeach()
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/generated/phalanx_gemm_tables.inc" CONTENT "${tables_text}")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/kernels/cuda/shipped_gemm_tables.cpp" PROPERTIES
  INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/generated"
  OBJECT_DEPENDS "${PROJECT_BINARY_DIR}/generated/phalanx_gemm_tables.inc")
target_link_libraries(phx_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
target_compile_options(phx_cuda INTERFACE $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall>>)
