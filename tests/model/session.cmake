# Session model: the client's session under the model.
set(sources "")
foreach(library gpurun_client_session gpurun_client_callpath gpurun_client_thread)
  get_target_property(some ${library} SOURCES)
  list(APPEND sources ${some})
endforeach()
get_target_property(beside gpurun_client_session LINK_LIBRARIES)
list(REMOVE_ITEM beside gpurun_client_thread gpurun_client_callpath gpurun_options)
list(REMOVE_ITEM sources stats/stats_report.cc)
list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/client/")
add_library(gpurun_model_session STATIC ${sources} doorbell_scenario.cc)
target_link_libraries(gpurun_model_session PRIVATE gpurun_options gpurun_model_code
                      PUBLIC ${beside} gpurun_protocol gpurun_base)
add_library(gpurun_model_session_scenarios OBJECT session_model.cc)

gpurun_model_test(session_model LIBRARY gpurun_model_session SCENARIOS gpurun_model_session_scenarios)
gpurun_flaws(session gpurun_model_session gpurun_model_session_scenarios)
