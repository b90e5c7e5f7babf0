# OpenBLAS by package; Debian and Ubuntu put the header into an architecture folder.
find_path(PHX_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas
          HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} REQUIRED)
find_library(PHX_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread REQUIRED)
add_library(OpenBLAS::OpenBLAS INTERFACE IMPORTED)
target_include_directories(OpenBLAS::OpenBLAS SYSTEM INTERFACE ${PHX_OPENBLAS_INCLUDE})
target_link_libraries(OpenBLAS::OpenBLAS INTERFACE ${PHX_OPENBLAS_LIBRARY})
