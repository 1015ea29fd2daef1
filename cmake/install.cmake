# Install rules: the tree that `cmake --install` writes. It has the shape of the build folder, and
# can be moved as a whole, because programs find their parts relative to themselves
# (tools/gpurun/places.h).
#
#   bin/gpurun, gpuctl, gpurund, gpurun-bitfusion
#   libexec/gpurun/gpurun-worker
#   lib/gpurun/client/              what programs load: libcuda.so.1, libnvidia-ml.so.1, libgpurun-*.so
#   lib/gpurun/emulated/            the emulated device under the same names
#   share/man/                      the manual, if go-md2man is there
#
# Completions lie in the folders of share/ where bash, zsh and fish look for them.
include(GNUInstallDirs)

# Every install rule for a target goes through this function, so that gpurun_install_set builds all
# targets that `cmake --install` copies. tests/unit/tools/setup/install_set_test.py compares the
# two.
set_property(GLOBAL PROPERTY gpurun_installed "")
function(gpurun_install_targets kind destination component)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})  # This build lacks it: GPURUN_EMULATED=OFF.
      continue()
    endif()
    set(namelink "")
    if(kind STREQUAL "LIBRARY")
      set(namelink NAMELINK_COMPONENT ${component})
    endif()
    install(TARGETS ${target} ${kind} DESTINATION ${destination} COMPONENT ${component} ${namelink})
    set_property(GLOBAL APPEND PROPERTY gpurun_installed ${target})
  endforeach()
endfunction()
gpurun_install_targets(RUNTIME bin client gpurun gpuctl)
# It is no `bitfusion`: an operator gives it that name, so that no package takes Bitfusion's own.
install(PROGRAMS packaging/bitfusion/gpurun-bitfusion DESTINATION bin COMPONENT client)
gpurun_install_targets(RUNTIME bin server gpurund)
gpurun_install_targets(RUNTIME libexec/gpurun server gpurun-worker)
gpurun_install_targets(LIBRARY lib/gpurun/client client gpurun_client_library gpurun_client_nvml gpurun_cuda_tools gpurun_device_files gpurun_nvjitlink)
gpurun_install_targets(RUNTIME lib/gpurun/client client gpurun_ptxas)
gpurun_install_targets(LIBRARY lib/gpurun/emulated server gpurun_emulated_cuda gpurun_emulated_nvml)

# Manual pages of docs/man, where go-md2man is installed.
find_program(GPURUN_MD2MAN go-md2man)
set(man_pages "")
function(gpurun_man_page name section component)
  set(page "${CMAKE_BINARY_DIR}/packaging/man/${name}.${section}")
  add_custom_command(OUTPUT "${page}"
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/site/man_page
            ${CMAKE_SOURCE_DIR}/docs/man/${name}.${section}.md "${page}"
    DEPENDS docs/man/${name}.${section}.md tools/site/man_page VERBATIM)
  install(FILES "${page}" DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
  set(man_pages ${man_pages} "${page}" PARENT_SCOPE)
endfunction()
if(GPURUN_MD2MAN AND Python3_EXECUTABLE)
  gpurun_man_page(gpurun 1 client)
  gpurun_man_page(gpuctl 1 client)
  gpurun_man_page(gpurun-bitfusion 1 client)
  gpurun_man_page(gpurund 8 server)
  gpurun_man_page(gpurun-emulated 7 server)
endif()
add_custom_target(gpurun_man_pages ALL DEPENDS ${man_pages})
get_property(installed GLOBAL PROPERTY gpurun_installed)
add_custom_target(gpurun_install_set DEPENDS ${installed} gpurun_man_pages)

# Completions, in the folders where shells look for them. packaging/completions/generate makes the files.
foreach(command gpurun gpuctl gpurund)
  set(component client)
  if(command STREQUAL "gpurund")
    set(component server)
  endif()
  set(completions "${CMAKE_SOURCE_DIR}/packaging/completions")
  install(FILES "${completions}/${command}.bash" DESTINATION share/bash-completion/completions RENAME ${command} COMPONENT ${component})
  install(FILES "${completions}/_${command}" DESTINATION share/zsh/site-functions COMPONENT ${component})
  install(FILES "${completions}/${command}.fish" DESTINATION share/fish/vendor_completions.d COMPONENT ${component})
endforeach()

# The unit names the prefix of `cmake --install --prefix`, which is known only at installation.
install(CODE "
  set(CMAKE_INSTALL_DOCDIR \"${CMAKE_INSTALL_DOCDIR}\")
  get_filename_component(GPURUN_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  configure_file(\"${CMAKE_SOURCE_DIR}/packaging/systemd/gpurund.service.in\"
                 \"${CMAKE_BINARY_DIR}/packaging/gpurund.service\" @ONLY)" COMPONENT server)
install(FILES "${CMAKE_BINARY_DIR}/packaging/gpurund.service" DESTINATION lib/systemd/system COMPONENT server)
# An example. A package installs it into /etc, and never overwrites an operator's own file.
install(FILES packaging/systemd/gpurund.toml DESTINATION share/gpurun COMPONENT server)
install(FILES README.md LICENSE NOTICE SECURITY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT client)
