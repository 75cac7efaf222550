"""autotune: find, prove and export the settings that train a PyTorch job fastest."""
