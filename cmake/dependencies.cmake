# Dependencies: every library that gpurun uses, found once. tools/setup installs them.
find_package(Threads REQUIRED)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
# The client library is loaded by programs on machines that may lack these libraries, and one server
# package fits several releases. Both therefore link the archives, which Debian's packages have.
# Without an archive they link the library that this machine has.
function(gpurun_archive_of library name)
  find_library(GPURUN_${name}_ARCHIVE lib${library}.a HINTS ${${name}_LIBRARY_DIRS})
  add_library(gpurun_${library} INTERFACE)
  if(GPURUN_${name}_ARCHIVE)
    target_include_directories(gpurun_${library} SYSTEM INTERFACE ${${name}_INCLUDE_DIRS})
    target_link_libraries(gpurun_${library} INTERFACE ${GPURUN_${name}_ARCHIVE})
  else()
    target_link_libraries(gpurun_${library} INTERFACE PkgConfig::${name})
  endif()
endfunction()
gpurun_archive_of(lz4 LZ4)
gpurun_archive_of(zstd ZSTD)
# OpenSSL is linked in the same way, so that our copy stays separate from any copy that the program
# loads. tools/setup/openssl has built one. An older OpenSSL of this machine works, too: TLS is slower,
# and links have no key exchange that outlives quantum computers.
if(EXISTS "${GPURUN_DEPS_DIR}/lib/libcrypto.a")
  set(OPENSSL_ROOT_DIR "${GPURUN_DEPS_DIR}")
  foreach(found OPENSSL_INCLUDE_DIR OPENSSL_SSL_LIBRARY OPENSSL_CRYPTO_LIBRARY)
    unset(${found} CACHE)  # An earlier configuration may have found another one.
  endforeach()
endif()
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3.0 QUIET)
if(NOT OPENSSL_FOUND)
  set(OPENSSL_USE_STATIC_LIBS OFF)
  find_package(OpenSSL 3.0 REQUIRED)
endif()
message(STATUS "OpenSSL ${OPENSSL_VERSION}: ${OPENSSL_CRYPTO_LIBRARY}")
add_library(gpurun_openssl INTERFACE)
target_link_libraries(gpurun_openssl INTERFACE OpenSSL::SSL OpenSSL::Crypto Threads::Threads ${CMAKE_DL_LIBS})
# Our own position-independent build (tools/setup/capnproto), because Debian's archives cannot be
# linked into a shared library.
find_package(CapnProto REQUIRED PATHS "${GPURUN_DEPS_DIR}" NO_DEFAULT_PATH)
# The package file names the prefix of the configuration, not the folder of the installation.
set(CAPNP_EXECUTABLE "${GPURUN_BUILD_TOOLS_DIR}/bin/capnp")
set(CAPNPC_CXX_EXECUTABLE "${GPURUN_BUILD_TOOLS_DIR}/bin/capnpc-c++")
set(CAPNP_INCLUDE_DIRECTORY "${GPURUN_DEPS_DIR}/include")

if(GPURUN_CLIENT_ONLY)
  # From GPURUN_DEPS_DIR: this machine's headers are not those of the client's C library.
  foreach(headers CLI11::CLI11 nlohmann_json::nlohmann_json)
    add_library(${headers} INTERFACE IMPORTED)
    target_include_directories(${headers} INTERFACE "${GPURUN_DEPS_DIR}/include")
  endforeach()
  return()
endif()

find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(GTest REQUIRED)
pkg_check_modules(LIBFFI REQUIRED IMPORTED_TARGET libffi)
gpurun_archive_of(ffi LIBFFI)

if(GPURUN_EMULATED)
  set(llvm_folder /usr/lib/llvm-19)
  if(EXISTS ${llvm_folder}/lib/libLLVM.so AND NOT EXISTS ${llvm_folder}/lib/libLLVMCore.a)
    # LLVM's own package file is an error when an archive is missing.
    add_library(LLVM SHARED IMPORTED)
    set_target_properties(LLVM PROPERTIES IMPORTED_LOCATION ${llvm_folder}/lib/libLLVM.so)
    set(LLVM_INCLUDE_DIRS ${llvm_folder}/include)
  else()
    find_package(LLVM 19.1 REQUIRED CONFIG HINTS ${llvm_folder}/lib/cmake/llvm)
  endif()
  # The archive, because the shared library has another version in each release.
  set(Boost_USE_STATIC_LIBS ON)
  find_package(Boost QUIET COMPONENTS context)
  if(NOT TARGET Boost::context)
    set(Boost_USE_STATIC_LIBS OFF)
    find_package(Boost REQUIRED COMPONENTS context)
  endif()
  # A target with the property GPURUN_OWN_LLVM gets these archives. All others get LLVM's shared
  # library, because linking it takes no time. A program may have an LLVM of its own, so libraries
  # that programs load must not load the shared one.
  add_library(gpurun_llvm INTERFACE)
  set(GPURUN_EMULATED_OWNS_LLVM OFF)
  if(GPURUN_SANITIZE STREQUAL "" AND TARGET LLVMOrcJIT AND TARGET LLVMPasses)
    llvm_map_components_to_libnames(llvm_archives orcjit native passes asmparser)
    target_link_libraries(gpurun_llvm INTERFACE ${llvm_archives})
    set(GPURUN_EMULATED_OWNS_LLVM ON)
  else()
    message(STATUS "LLVM is not linked into the emulated device (a sanitizer, or no archives of LLVM): "
                   "it loads LLVM's shared library, and programs with an LLVM of their own may crash on it")
    target_link_libraries(gpurun_llvm INTERFACE LLVM)
  endif()
endif()

# nvcc compiles only the test programs. The product is built without it.
find_program(GPURUN_NVCC nvcc HINTS "${GPURUN_DEPS_DIR}/cuda/bin" /usr/local/cuda/bin)
