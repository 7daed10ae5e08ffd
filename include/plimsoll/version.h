/* Version of the library and the program. */
#ifndef PL_PLIMSOLL_VERSION_H
#define PL_PLIMSOLL_VERSION_H

#define PL_VERSION "0.1.0"

/* Version of docs/NUMERICS.md: results of equal versions have equal bits. */
#define PL_NUMERICS_VERSION 1

#endif
