// What the worker notices of its own end, and what it is kept from.
#pragma once
#include "protocol.hpp"

namespace cosimo::isolation {

// The memory that the master shares with it, or null. On Windows its words are made UTF-8, and handles taken from them.
Header *attach(int &count, char **&arguments);
// Crashes write their signal where the master sees it, also when the stack is used up.
void notice_crashes(Header *header);
// Ends the worker when the master ends, and passes on what the unit prints; false where that cannot be had.
bool watch_master(Header *header);
// All that the unit has started ends with the worker; a copy of the worker itself (fork) ends where it comes back.
void own_children(Header *header);
void end_if_copy();
void end_children();
// No more memory than the limit; refusals are noted, on Windows when somebody asks. Returns why that cannot be had.
const char *limit_memory(Header *header);
void note_refused_memory();
// No processes and no sockets; attempts are counted. Returns why that cannot be had here, or nothing.
const char *refuse_calls(Header *header);

}  // namespace cosimo::isolation
