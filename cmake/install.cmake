# What `cmake --install` puts where. The same shape as the build folder, and movable as a whole:
# programs find their parts relative to themselves (tools/gpurun/places.h).
#
#   bin/gpurun, gpuctl, gpurund     libexec/gpurun/gpurun-worker
#   lib/gpurun/client/              what programs load: libcuda.so.1, libnvidia-ml.so.1, libgpurun-nvjitlink.so
#   lib/gpurun/emulated/            the emulated device under the same names
include(GNUInstallDirs)

install(TARGETS gpurun gpuctl RUNTIME DESTINATION bin COMPONENT client)
install(TARGETS gpurund RUNTIME DESTINATION bin COMPONENT server)
install(TARGETS gpurun-worker RUNTIME DESTINATION libexec/gpurun COMPONENT server)

# gpurun_install_library(FOLDER COMPONENT TARGET...): those of the targets that this build has.
function(gpurun_install_library folder component)
  foreach(library IN LISTS ARGN)
    if(TARGET ${library})
      install(TARGETS ${library} LIBRARY DESTINATION lib/gpurun/${folder} COMPONENT ${component}
              NAMELINK_COMPONENT ${component})
    endif()
  endforeach()
endfunction()
gpurun_install_library(client client gpurun_client_library gpurun_client_nvml gpurun_nvjitlink)
gpurun_install_library(emulated server gpurun_emulated_cuda gpurun_emulated_nvml)

configure_file(packaging/systemd/gpurund.service.in packaging/gpurund.service @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/packaging/gpurund.service" DESTINATION lib/systemd/system COMPONENT server)
# An example: a package puts it into /etc, an operator's own file is never overwritten.
install(FILES packaging/systemd/gpurund.toml DESTINATION share/gpurun COMPONENT server)
install(FILES README.md LICENSE NOTICE SECURITY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT client)
