// The wheel of libtorch lacks Gloo's headers. ProcessGroupGloo.hpp needs them only to name types; these files declare
// the types and the functions that its inline code calls. No object of theirs is made here.
#pragma once
#include <chrono>
namespace gloo {
class Context {
public:
	std::chrono::milliseconds getTimeout() const;
	void setTimeout(std::chrono::milliseconds timeout);
};
} // namespace gloo
