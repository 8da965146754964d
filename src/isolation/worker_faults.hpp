// What the worker notices of its own end, and what it is kept from.
#pragma once
#include "protocol.hpp"

namespace cosimo::isolation {

// Crashes write their signal where the master sees it, also when the stack is used up.
void notice_crashes(Header *header);
// Ends the worker when the master ends, and passes on what the unit prints; false where that cannot be had.
bool watch_master(Header *header);
// All that the unit has started ends with the worker; a copy of the worker itself (fork) ends where it comes back.
void own_children(Header *header);
void end_if_copy();
void end_children();
// No more memory than the limit; refusals are noted.
void limit_memory(Header *header);
// No processes and no sockets; attempts are counted. Returns why that cannot be had here, or nothing.
const char *refuse_calls(Header *header);

}  // namespace cosimo::isolation
