// The worker's end of the log: records go to the master through a ring; what would flood it is counted instead.
#pragma once
#include "protocol.hpp"

namespace cosimo::isolation {

constexpr std::size_t text_bytes = 2000;        // of one record
constexpr std::uint32_t records_per_call = 64;  // and as many again for errors

void log_to(Header *header);
void log_begins();  // a new request: as many records as usual are let through again
bool log_has_room(int kind);
void log_record(int kind, const char *text, std::size_t length);

}  // namespace cosimo::isolation
