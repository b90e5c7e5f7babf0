# OpenBLAS by package; Debian and Ubuntu put the header into an architecture folder.
find_path(PHX_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas
          HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} REQUIRED)
find_library(PHX_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread REQUIRED)
add_library(OpenBLAS::OpenBLAS INTERFACE IMPORTED)
target_include_directories(OpenBLAS::OpenBLAS SYSTEM INTERFACE ${PHX_OPENBLAS_INCLUDE})
target_link_libraries(OpenBLAS::OpenBLAS INTERFACE ${PHX_OPENBLAS_LIBRARY})

# oneDNN's sgemm where there is one: a sixth faster than OpenBLAS's on AVX-512.
find_path(PHX_DNNL_INCLUDE dnnl.h)
find_library(PHX_DNNL_LIBRARY dnnl)
find_library(PHX_GOMP_LIBRARY NAMES gomp libgomp.so.1)
if(PHX_DNNL_INCLUDE AND PHX_DNNL_LIBRARY AND PHX_GOMP_LIBRARY)
  target_compile_definitions(OpenBLAS::OpenBLAS INTERFACE PHX_HAVE_DNNL)
  target_link_libraries(OpenBLAS::OpenBLAS INTERFACE ${PHX_DNNL_LIBRARY} ${PHX_GOMP_LIBRARY})
endif()
