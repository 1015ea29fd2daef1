// Finding a row. The rows themselves are generated from cuda_driver.toml.
#include "driver_abi/row.h"
