/* What C++ has by itself. */
#pragma once
