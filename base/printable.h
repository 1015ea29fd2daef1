// printable(): text of another program, made safe for a terminal or a line of a log.
//
// A terminal obeys control characters, including those that UTF-8 writes in two bytes (C1). After a
// bidirectional override it shows text in another order. Text from a peer passes through here
// before it is shown. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpurun {

// Returns `text` with `substitute` in place of each unsafe character, and of each byte that is not
// UTF-8. Unsafe are control characters (C0, DEL, C1), line and paragraph separators, bidirectional
// marks, overrides and isolates, and tag characters. A line end or a tab is a control character,
// too. Printable text stays as it is.
std::string printable(std::string_view text, char substitute = '?');

// Returns whether printable() would change nothing.
bool is_printable(std::string_view text);

}  // namespace gpurun
