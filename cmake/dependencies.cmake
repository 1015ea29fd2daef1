# Dependencies: every library that gpurun uses, found once. tools/setup installs them.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LIBFFI REQUIRED IMPORTED_TARGET libffi)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
# The client library is loaded by programs on machines that may lack these libraries. It therefore
# links the archives, which Debian's packages have. Without an archive it links the library that
# this machine has.
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
# loads.
find_library(GPURUN_SSL_ARCHIVE libssl.a HINTS ${OPENSSL_LIBRARY_DIR})
find_library(GPURUN_CRYPTO_ARCHIVE libcrypto.a HINTS ${OPENSSL_LIBRARY_DIR})
add_library(gpurun_openssl INTERFACE)
if(GPURUN_SSL_ARCHIVE AND GPURUN_CRYPTO_ARCHIVE)
  target_include_directories(gpurun_openssl SYSTEM INTERFACE ${OPENSSL_INCLUDE_DIR})
  target_link_libraries(gpurun_openssl INTERFACE
    ${GPURUN_SSL_ARCHIVE} ${GPURUN_CRYPTO_ARCHIVE} Threads::Threads ${CMAKE_DL_LIBS})
  # The entry of OpenSSL's default provider. transport/tls/minimal_openssl_provider.cc makes a smaller one
  # from it.
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${OPENSSL_INCLUDE_DIR})
  set(CMAKE_REQUIRED_LIBRARIES ${GPURUN_CRYPTO_ARCHIVE} Threads::Threads ${CMAKE_DL_LIBS})
  check_c_source_compiles("#include <openssl/core.h>
    OSSL_provider_init_fn ossl_default_provider_init;
    int main(void) { return ossl_default_provider_init(0, 0, 0, 0); }" GPURUN_OPENSSL_DEFAULT_PROVIDER)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(GPURUN_OPENSSL_DEFAULT_PROVIDER)
    target_compile_definitions(gpurun_openssl INTERFACE GPURUN_OPENSSL_DEFAULT_PROVIDER)
  endif()
else()
  target_link_libraries(gpurun_openssl INTERFACE OpenSSL::SSL)
endif()
# AES in 512-bit registers (transport/tls/aead_vaes512.cc), from Intel's library for IPsec. The archive
# has these functions, but no header declares them. Without the archive, or with a later one that
# lacks them, only OpenSSL's AES is used.
option(GPURUN_IPSEC_MB "Seal and open TLS records with Intel's library for IPsec where it is quicker" ON)
find_library(GPURUN_IPSEC_MB_ARCHIVE libIPSec_MB.a)
if(GPURUN_IPSEC_MB AND GPURUN_IPSEC_MB_ARCHIVE)
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES ${GPURUN_IPSEC_MB_ARCHIVE})
  check_c_source_compiles("#include <intel-ipsec-mb.h>
    #include <sys/platform/x86.h>
    void aes_gcm_precomp_128_vaes_avx512(struct gcm_key_data *);
    void aes_gcm_init_128_vaes_avx512(void);
    void aes_gcm_enc_128_update_vaes_avx512(void);
    void aes_gcm_dec_128_update_vaes_avx512(void);
    void aes_gcm_enc_128_finalize_vaes_avx512(void);
    void aes_gcm_dec_128_finalize_vaes_avx512(void);
    int main(void) {
      struct gcm_key_data key;
      aes_keyexp_128_enc_avx512(&key, key.expanded_keys);
      aes_gcm_precomp_128_vaes_avx512(&key);
      aes_gcm_init_128_vaes_avx512();
      aes_gcm_enc_128_update_vaes_avx512();
      aes_gcm_dec_128_update_vaes_avx512();
      aes_gcm_enc_128_finalize_vaes_avx512();
      aes_gcm_dec_128_finalize_vaes_avx512();
      return CPU_FEATURE_ACTIVE(VAES);
    }" GPURUN_VAES512)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(GPURUN_VAES512)
    add_library(gpurun_wide_aes INTERFACE)
    target_link_libraries(gpurun_wide_aes INTERFACE ${GPURUN_IPSEC_MB_ARCHIVE})
    target_compile_definitions(gpurun_wide_aes INTERFACE GPURUN_VAES512)
  endif()
else()
  set(GPURUN_VAES512 OFF)
endif()
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(GTest REQUIRED)
# Our own position-independent build (tools/setup/capnproto), because Debian's archives cannot be
# linked into a shared library.
find_package(CapnProto REQUIRED PATHS "${GPURUN_DEPS_DIR}" NO_DEFAULT_PATH)
# The package file names the prefix of the configuration, not the folder of the installation.
set(CAPNP_EXECUTABLE "${GPURUN_DEPS_DIR}/bin/capnp")
set(CAPNPC_CXX_EXECUTABLE "${GPURUN_DEPS_DIR}/bin/capnpc-c++")
set(CAPNP_INCLUDE_DIRECTORY "${GPURUN_DEPS_DIR}/include")

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
  find_package(Boost REQUIRED COMPONENTS context)
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
