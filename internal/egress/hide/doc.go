// Package hide keeps the secrets that a sandbox has for a host out of what the host
// answers: each byte of them becomes a star, however it is spelled.
package hide
