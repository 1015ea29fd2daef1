gpurun_test(foreign_call_test unit ONE_THREAD SOURCES driver/foreign_call_test.cc LIBRARIES gpurun_server_driver)
gpurun_test(dispatch_rows_test unit ONE_THREAD SOURCES driver/dispatch_rows_test.cc LIBRARIES gpurun_server_driver)
gpurun_test(cuda_driver_test unit ONE_THREAD SOURCES driver/cuda_driver_test.cc LIBRARIES gpurun_server_driver)
gpurun_test(context_streams_test unit SOURCES worker/execution/context_streams_test.cc LIBRARIES gpurun_server_callpath)
gpurun_test(completions_test unit SOURCES worker/execution/completions_test.cc LIBRARIES gpurun_server_callpath)
gpurun_test(synchronize_test unit SOURCES worker/execution/synchronize_test.cc
            LIBRARIES gpurun_server_handlers gpurun_server_callpath gpurun_transport_testing)
gpurun_test(printing_images_test unit ONE_THREAD SOURCES handlers/modules/printing_images_test.cc
            LIBRARIES gpurun_server_handlers gpurun_server_callpath gpurun_lz4 gpurun_zstd)
gpurun_test(graph_shadows_test unit SOURCES handlers/graphs/graph_shadows_test.cc
            LIBRARIES gpurun_server_handlers gpurun_server_callpath gpurun_transport_testing)
