// printable(): text of another program, made safe for a terminal or a line of a log.
//
// A terminal obeys control characters, also those that UTF-8 writes in two bytes (C1), and shows
// text in another order after a bidirectional override. What a peer sends goes through here before
// it is shown. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpurun {

// `text` with `substitute` in place of each control character (C0, DEL, C1), line or paragraph
// separator, bidirectional mark, override or isolate, and tag character, and of each byte that is
// not UTF-8. A line end or a tab is a control character, too. Printable text stays as it is.
std::string printable(std::string_view text, char substitute = '?');

// Whether printable() would change nothing.
bool is_printable(std::string_view text);

}  // namespace gpurun
