// Exit handlers: this library registers none, and no destructor of a static object.
//
// The end of a process would otherwise destroy LLVM's tables, which a compilation in the background
// uses. It would have to wait for the compilation, for seconds. So the compilation goes on, and
// ends with the process. Everything in this library that was linked with it registers here: LLVM,
// the C++ library and std::atexit(). It is never unloaded (-z nodelete).
extern "C" {

__attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) noexcept {
  return 0;
}

}  // extern "C"
