// Package secondchance will have packets of connections that routers bring to the wrong member passed on to the
// others, of which one owns them. So far it is a model, in tests only: decision 50 is a proposal.
package secondchance
