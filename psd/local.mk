# psd
