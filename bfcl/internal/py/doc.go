// Package py implements the part of Python that is visible in the benchmark: dynamic values, their
// equality, repr and JSON, evaluation of call strings, exceptions, and CPython's random streams.
// Start with Parse and Eval, or FromJSON; Repr, Str and JSON print values. Packages api and bfcl
// use it.
//
// A Value is one of:
//
//	nil        None
//	bool
//	int64      an int that fits
//	*big.Int   an int that does not
//	float64
//	string     valid UTF-8; lone surrogates are rejected on input
//	*List      mutable, shared by reference
//	*Dict      mutable, insertion-ordered, keys compared like Python (1, 1.0 and True are one key)
//	*Set
//	Tuple
//	Opaque     a value that only prints (Ellipsis, Decimal, mpf, mpc)
//
// Exceptions are Go errors of type *Exception with the Python class name and message.
package py
