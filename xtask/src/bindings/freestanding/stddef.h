/* As much of it as the headers of sys/include use, so that reading them needs no C library. */
#pragma once

typedef __SIZE_TYPE__ size_t;
