# Order model: the worker's executor under the model.
get_target_property(some gpurun_server_callpath SOURCES)
set(sources ${some})
list(FILTER sources EXCLUDE REGEX "^(decoder|output_capture|worker)\\.cc$")
list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/server/worker/")
add_library(gpurun_model_order STATIC ${sources} cuda_program.cc order_device.cc)
target_link_libraries(gpurun_model_order PRIVATE gpurun_options gpurun_model_code
                      PUBLIC gpurun_server_bulk gpurun_server_driver gpurun_protocol gpurun_base)
add_library(gpurun_model_order_scenarios OBJECT order_model.cc any_program.cc smaller_program.cc)

gpurun_model_test(order_model LIBRARY gpurun_model_order SCENARIOS gpurun_model_order_scenarios)
gpurun_flaws(order gpurun_model_order gpurun_model_order_scenarios)
