// In place of the module of this name, see channels.go.
module github.com/eapache/channels

go 1.26.0
