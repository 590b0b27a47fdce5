"""COCO, and the Visual Wake Words task made from its annotations."""
