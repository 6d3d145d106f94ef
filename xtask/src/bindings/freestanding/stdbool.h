/* Empty: C++ has these types built in. */
#pragma once
