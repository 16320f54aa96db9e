// Package py is the small part of Python that the benchmark makes visible: dynamic values, their equality, repr and
// JSON, evaluation of call strings, argument binding, exceptions, and CPython's random streams.
//
// A Value is one of
//
//	nil        None
//	bool
//	int64      an int that fits
//	*big.Int   an int that does not
//	float64
//	string     valid UTF-8 (lone surrogates are refused at the border)
//	*List      mutable, shared by reference as in Python
//	*Dict      mutable, insertion-ordered, keys compared as Python does (1, 1.0 and True are one key)
//	*Set
//	Tuple
//	Opaque     a value that only prints (Ellipsis, Decimal, mpf, mpc)
//
// Exceptions travel as Go errors of type *Exception with the Python class name and message.
package py
