# cmake --install BUILD --prefix PREFIX: the program, and the library that it is made of, for
# find_package(phalanx). docs/library.md says what of it is public.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/phalanx")

add_library(phx_all INTERFACE)  # phalanx::phalanx: every room
target_link_libraries(phx_all INTERFACE phx_cli)
set_target_properties(phx_all PROPERTIES EXPORT_NAME phalanx)

get_property(rooms GLOBAL PROPERTY PHX_ROOMS)
set(targets phx_all phx_flags ${rooms})
if(PHX_CUDA)
  list(APPEND targets phx_cuda)
endif()
install(TARGETS ${targets} EXPORT phalanxTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/phalanx"
        COMPONENT library)
install(EXPORT phalanxTargets NAMESPACE phalanx:: DESTINATION "${package_dir}" COMPONENT library)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/phalanx"
        COMPONENT library FILES_MATCHING PATTERN "*.h")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/phalanxConfig.cmake.in" phalanxConfig.cmake
                              INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may change what is public.
write_basic_package_version_file(phalanxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/phalanxConfig.cmake" "${PROJECT_BINARY_DIR}/phalanxConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/Blas.cmake" "${PROJECT_SOURCE_DIR}/cmake/Text.cmake"
        DESTINATION "${package_dir}" COMPONENT library)

include(Package)

if(PHX_TESTS AND NOT PHX_SANITIZE)  # the programs under examples/, built against what is installed
  add_test(NAME library.ProgramsOfOthersBuildAndTrain
           COMMAND "${PROJECT_SOURCE_DIR}/scripts/check_library.sh" "${PROJECT_BINARY_DIR}")
  set_tests_properties(library.ProgramsOfOthersBuildAndTrain PROPERTIES LABELS library TIMEOUT 900)
endif()
