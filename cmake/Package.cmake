# Debian packages: cpack -G DEB in the build folder makes phalanx (the program) and libphalanx-dev
# (what programs of others are built with). scripts/package.sh builds them, scripts/check_package.sh
# tries the first on a bare Debian.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME phalanx)
set(CPACK_PACKAGE_CONTACT "The Phalanx developers <phalanx@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains large language models with Megatron's flags and files")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program library)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME phalanx)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libphalanx-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS
    "libfmt-dev, libspdlog-dev, nlohmann-json3-dev, libyaml-cpp-dev, libopenblas-dev, libdnnl-dev, libpcre2-dev, \
libsimdjson-dev, libutf8proc-dev, libsentencepiece-dev, libxxhash-dev, libzstd-dev, zlib1g-dev, libopenmpi-dev")
include(CPack)
