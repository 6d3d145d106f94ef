/* The part that the headers of sys/include use, so that bindgen needs no C library. */
#pragma once

typedef __SIZE_TYPE__ size_t;
