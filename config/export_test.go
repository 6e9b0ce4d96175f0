package config

// ParseKeys reads the content of a key file.
func ParseKeys(data []byte) ([][]byte, error) { return parseKeys(data) }
