"""ImageNet (ILSVRC2012) as folders of photographs."""
