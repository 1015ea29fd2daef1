// gl.h: stand-in for the graphics header that CUDA's headers include. Prototypes are read from
// preprocessed text, which needs no types.
#pragma once
