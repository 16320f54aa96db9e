// Package stat finds out whether files changed. A Stamp identifies the content of a file by its inode, size and times,
// a File is a file as found, and Digests computes content digests of files and folders once.
package stat
