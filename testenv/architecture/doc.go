// Package architecture holds tests of the repository's structure: which package may import which, and that each fact
// has one type.
package architecture
