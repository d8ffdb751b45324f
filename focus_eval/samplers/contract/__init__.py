"""The contract suite: does a sampler keep what every sampler promises?"""
